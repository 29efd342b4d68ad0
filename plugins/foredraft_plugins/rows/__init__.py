"""``foredraft::RMSNorm``, ``AddRMSNorm`` and ``SwiGLU``: operators over independent rows."""
