"""The administration API: ATOM over HTTP, as the SDKs' administration clients use it.

`api.py` answers requests and does not depend on an HTTP server; the server calls `AdminApi.handle`. Reading
(`requests.py`, `xml_in.py`), writing (`xml_out.py`, `feed.py`) and the conversions for each kind (`entity_xml.py`, ...)
are pure.
"""
