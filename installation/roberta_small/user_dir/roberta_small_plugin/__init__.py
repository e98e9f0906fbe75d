"""The folder for `fairseq-train --user-dir`.

fairseq imports this folder as a top-level module, with the folder that contains it in `sys.path`. With
`roberta_small/fairseq_plugin` it would import the plugin a second time, under another name.
"""

import roberta_small.fairseq_plugin  # noqa: F401  registers tasks, criteria, models, optimizer and schedule
