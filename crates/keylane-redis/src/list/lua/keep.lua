-- Keeps a letter. ARGV: its head, its headers, the element.
keep(ARGV[1], ARGV[2], ARGV[3])
return 1
