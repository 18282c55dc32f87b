select token, stage, history, {here} as here from {terms} where id = $1 for share
