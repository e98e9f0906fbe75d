"""`python -m preprocess download`: public data and models, fetched, checked and unpacked."""
