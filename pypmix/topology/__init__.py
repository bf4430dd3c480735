"""The hardware of a node: read from the kernel or from hwloc's XML, and written as XML.

Sets of CPUs and of NUMA nodes are plain integers, in which bit N stands for number N; a negative one has no end, as
hwloc's infinite sets. `bitmaps` has their text forms, `machine` the objects, `kernel` and `xml` read and write them,
`locality` makes and compares locality strings, and `distances` computes how far devices are.
"""
