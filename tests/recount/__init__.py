"""
The figures of a lake, counted a second time: from the JSON lines of journals, in plain Python, event by event.

``journal`` reads lines, ``sets`` lets events happen to broker sets, ``figures`` counts, ``compare`` holds the result against a
lake's gold; ``stories`` makes journals with the product's own core.

Rule 1: ``journal``, ``sets``, ``figures`` and ``compare`` import nothing of the product, and take no definition from it: these
are in ``docs/data-dictionary.md`` and ``docs/analytics.md``. Columns and keys are read from the page.
Rule 2: a count of nothing is a failure: each table has rows, each case that is asked for was there.
"""
