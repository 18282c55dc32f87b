update {workers} set runs_out = clock_timestamp() + $2 * interval '1 microsecond',
    renewals = renewals + 1
where id = $1 and runs_out > clock_timestamp() and history = {here} and renewals >= $3
