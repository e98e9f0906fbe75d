"""Methods compared over several data sets: tables, figures and a report."""
