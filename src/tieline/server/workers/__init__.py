"""Workers: processes that serve the clients of a hub. The hub's process decides, stores, and does all the rest.

Used by: the hub's process, which has a `WorkerPool`. A *door* is a port or a Unix socket of the hub. A worker serves
the doors that any process can serve: the HTTP port with TLS and WebSockets, the hub's own protocol, and protocols that
declare `in_workers`. It uses the hub over a link. `pool` starts workers and hands connections over to them. `process`
is the program of a worker. `control` carries messages between both, `handed_doors` has the doors of a worker, and
`forwarding` passes HTTP requests on to the hub's process.
"""
