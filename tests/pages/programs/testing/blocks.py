from lib.blocks import Session

session = Session("testing", globals())
shown = []
session.run(0)
test_on_virtual_time()
print = shown.append
session.run(1)
assert shown == [[0, 1, 2, 3]]
