select lanes.lane, lanes.crashes, lanes.token, keys.last, keys.redriven,
    tidsend(lanes.ctid) as place, tidsend(keys.ctid) as of_key
from {lanes} lanes join {keys} keys using (lane)
where lanes.worker = $1
