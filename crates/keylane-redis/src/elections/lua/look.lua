-- Returns the election.
return forget() and publish() or seen()
