"""The machine as data: frozen facts (``model``) and the probes that read them from a host."""
