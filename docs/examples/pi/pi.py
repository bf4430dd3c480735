"""Each rank adds up a part of a series for pi, and all of them exchange their sums."""

import pypmix

STEPS = 200_000


def part(rank, size):
    """Return the sum of the steps that belong to one of so many ranks."""
    return sum(4 / (1 + ((step + 0.5) / STEPS) ** 2) for step in range(rank, STEPS, size)) / STEPS


if __name__ == "__main__":
    with pypmix.Client() as me:
        me.put("sum", part(me.rank, me.job.size))
        me.fence(collect=True, timeout=30)
        sums = [me.get("sum", proc) for proc in me.job]
        print(f"rank {me.rank} of {me.job.size}: pi is {sum(sums):.9f}")
