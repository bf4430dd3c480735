"""The definitions of the PMIx Standard as Python: names, types, values, errors and operations. No I/O, no engine."""
