-- Ends the lease of a term that is held as claimed. ARGV: what the lease holds then.
if call('GET', lease) == ARGV[3] then
  call('DEL', lease)
  forget()
  publish()
end
return 1
