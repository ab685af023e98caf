"""The web console: what is in the namespaces of this process, for people with a browser.

Imported with the first request for it. Nothing of it runs while nobody looks: numbers are read when they are asked for.
"""
