"""All settings of each method, and the one that validation selects: tables and figures."""
