-- Letters have numbers, which only grow: each takes a token. The number is the last of the headers of a
-- letter, as 20 digits.
local IN_FRONT = struct.pack('>I4', 14) .. 'keylane.letter' .. struct.pack('>I4', 20)
local IS_LETTER = 8

local function in_digits(number)
  return string.rep('0', 20 - #number) .. number
end

-- Keeps a letter. Its parts: the head, the headers with the number counted, and the element.
local function keep(head, headers, element)
  headers = headers .. IN_FRONT .. in_digits(tokens(1)[1])
  redis.call('LPUSH', letters, head .. struct.pack('>I4', #headers) .. headers .. element)
end

-- The number of a letter in digits; nothing if it has none.
local function number_of(letter)
  local _, flags, length = envelope(letter)
  if not flags or not has(flags, IS_LETTER) or #letter < 17 + length then return '' end
  -- Where the number begins, at the end of the headers, whose length stands in front of them.
  local at = 18 + length + struct.unpack('>I4', letter, 14 + length) - 20
  if string.sub(letter, at - #IN_FRONT, at - 1) ~= IN_FRONT then return '' end
  return string.sub(letter, at, at + 19)
end

-- How many letters, from the oldest, are not above this number in digits.
local function up_to(number)
  local low, high = 0, redis.call('LLEN', letters)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_below(number, number_of(redis.call('LINDEX', letters, -1 - middle))) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end
