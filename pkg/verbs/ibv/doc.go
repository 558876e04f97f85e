// Package ibv is the fabric over RDMA: InfiniBand, and RoCE v2. The NIC of the memory server
// executes the requests; no code of the server runs per operation.
//
// It is built with cgo on libibverbs behind the build tag ibv. Without the tag [NewDevice] and
// [NewServer] say how to get a program that has it, and everything here that is mere computation is
// still built and tested.
//
// # Connecting
//
// Client and server meet over TCP: the handshake of package hello, with a token of the control
// service, then frames (wire.go) by which queue pairs are made in pairs, one on either side. That
// connection stays open as long as the queue pairs live. Its end tells the server that the client
// is gone, and the client that it was cut; either destroys its queue pairs then.
//
// # What the queue pairs guarantee
//
// They are reliable connected (RC). G1 is what the InfiniBand specification says of one RC queue
// pair: a responder executes the requests in the order in which they were posted, a requester's
// Fence holds a request back until the READs and atomics before it have completed. A completion of
// an RC request means that the responder has executed it, which with the order of PCIe writes is
// G3.
//
// OrderedReads is not offered. The responder begins the READs of a queue pair in order, but the NIC
// fetches their bytes by PCIe reads, which the host may serve in any order; so a later READ may
// show memory as it was before an earlier one looked. Soft-RoCE does execute them one after the
// other (a litmus test of this package sees no other outcome there), which says nothing about a
// NIC.
//
// CacheLineAtomic, OrderedWrite and ReleaseByWrite depend on NIC and host, and are not offered
// either. WholeWrite is the path MTU: what fits into one packet is applied by the responder whole
// or not at all, whatever becomes of the client, and of the server's process (WholeAlways): the NIC
// does it. Longer WRITEs may end between packets.
//
// # Atomics and the CPU
//
// A NIC's atomics are atomic against those of the same NIC only. So all clients of a memory server
// go through one NIC, and the server itself changes words of atomics by a queue pair that is
// connected to another of its own (verbs.LocalAtomics).
//
// # Calls
//
// A two-sided call is a SEND of the request and a SEND of the answer, of one queue pair (calls.go).
//
// # Quiet queue pairs (G3)
//
// The server ends a session by moving its queue pairs to the error state and destroying them: after
// that the NIC drops what still arrives for them. What it took before may still be on its way
// through PCIe, so the server then READs a word of each region through its own queue pair: a READ's
// answer does not overtake the WRITEs before it. Only then is the session over.
//
// Conn.Close says farewell, and returns nil once the server has done that. As with tcp, a
// connection that broke without a farewell is named by the next Connect of the same Device, and the
// server ends it before it admits the new one.
//
// # A device that goes away
//
// Its end is that of all its connections, on either side, with an error that names it. A Device
// opens it anew, or another that fits its Options, when it next connects or makes an arena, and
// registers its arenas with that. A server's regions have keys of the device that is gone: Serve
// returns an error, and the process has to end. An event that ends a single queue pair ends the
// connection that it belongs to (events.go).
package ibv

import "errors"

// Options choose what of the host a device or server uses. The zero value is the first active port
// of the first RDMA device.
type Options struct {
	// Device is the name of the RDMA device, as in /sys/class/infiniband. Empty = the first one
	// with an active port.
	Device string
	// Port of the device, from 1. 0 = its first active one.
	Port int
	// DeviceMemory lets a server put the lock region into the NIC's own memory, if the NIC has
	// enough; else the region stays in host memory. The bytes of the region are then those at the
	// start of the server, and again after its Close; a server that dies without Close loses them.
	// Devices ignore it.
	DeviceMemory bool
	// Report is told of each asynchronous event of the device, with the name that libibverbs has
	// for it (PORT_ERR). note is true for one of each kind in a minute, which a log has room for.
	// It is called on the goroutine that reads them, and returns soon. Nil = nobody is told.
	Report func(device, event string, note bool)
}

// MaxQPs is how many queue pairs one connection may have.
const MaxQPs = 256

// ErrNotBuilt is returned by a program without RDMA.
var ErrNotBuilt = errors.New("this program was built without RDMA; build it with the tag ibv and cgo (go build -tags ibv, with libibverbs-dev), or use the image of `make image-rdma`")

// ErrNoDevice is returned when the host has no RDMA device that can be used; the error says why.
var ErrNoDevice = errors.New("no usable RDMA device")
