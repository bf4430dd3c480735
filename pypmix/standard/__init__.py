"""What the PMIx Standard defines, as Python: names, types, values, errors and operations. No I/O, no engine."""
