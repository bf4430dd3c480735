"""Processes of JAX sum up what each has."""

import jax
import jax.numpy as jnp

import pypmix.jax  # noqa: F401

jax.distributed.initialize()

here = jnp.full(jax.local_device_count(), jax.process_index())
total = jax.pmap(lambda each: jax.lax.psum(each, "processes"), "processes")(here)
print(f"process {jax.process_index()} of {jax.process_count()}: the sum is {total[0]}")
