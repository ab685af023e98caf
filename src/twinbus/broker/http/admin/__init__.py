"""The administration API: ATOM over HTTP, as the SDKs' administration clients speak it.

`api.py` answers requests and knows no HTTP server; whoever has one calls `AdminApi.handle`. Reading (`requests.py`,
`xml_in.py`), writing (`xml_out.py`, `feed.py`) and the two ways of each kind (`queue_xml.py`, ...) are pure.
"""
