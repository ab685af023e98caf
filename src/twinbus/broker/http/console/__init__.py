"""The web console: shows the namespaces of this process in a browser.

Imported with the first request for it. Nothing runs while nobody looks: numbers are read on demand.
"""
