"""What several tests share: small models, data and runs, stand-ins, and programs that tests start."""
