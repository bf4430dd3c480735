step = 1
