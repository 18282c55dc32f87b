-- The first command of a transaction, whose other answers are worth nothing if this is not ours.
return standing()
