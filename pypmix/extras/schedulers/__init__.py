"""Rosters for Flux, PRRTE and other PMIx launchers, and further jobs of Slurm."""
