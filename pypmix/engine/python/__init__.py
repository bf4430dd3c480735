"""The engine that needs no libpmix: it speaks OpenPMIx's wire protocol itself."""
