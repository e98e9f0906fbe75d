"""`roberta-small download`: public data and models, fetched, checked and unpacked."""
