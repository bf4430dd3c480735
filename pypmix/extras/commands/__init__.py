"""Commands of `pypmix` beyond running and inspecting jobs."""
