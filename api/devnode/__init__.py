"""``reliable-channel devnode``: a stand-in for a Waku node, or for a small network of them, over HTTP.

It answers as the REST API of a node does, with the same statuses, bodies and gaps, so that services on one machine can
talk without a Waku network and tests have something to break. What it knows of a network is in `network`, `node` and
what they use, without HTTP; the routes put HTTP around them. It is for trials and tests: nothing here speaks to a real
network, proves who somebody is, or keeps anything longer than its process.
"""
