package shm

import (
	"fmt"
	"hash/fnv"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// How the server knows that a client is gone.
//
// Each session gets open file descriptions of its own of the regions' files, and on each the server
// has locked one byte that stands for the session's peer. Such a lock (fcntl(2), "open file
// description locks") lasts exactly as long as the description; and a mapping keeps the description
// that it was made through, as a descriptor does. So as long as any process can change the memory
// through the session the byte is locked, and when the last one has unmapped it, or died, it is
// not: without a word of the client's, in whatever pid namespace it lives, whether its child
// processes inherited the mapping, and whichever process is the server by then.

// firstHold is where the locked bytes lie: far behind the end of every region.
const firstHold = 1 << 62

// hold is the byte that stands for a peer. Two indexes whose names have one hash would wait for
// each other's clients, which is safe.
func hold(peer verbs.Peer) int64 {
	h := fnv.New64a()
	h.Write([]byte(peer.Index))
	return firstHold + int64(h.Sum64()>>19<<16) + int64(peer.Client)
}

// holds are the regions' files, in the order of the regions.
type holds []*os.File

// open opens every file anew for a session of peer and locks its byte. The caller closes the
// descriptors.
func (f holds) open(peer verbs.Peer) (fds []int, err error) {
	for _, file := range f {
		var fd int
		if fd, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			break
		}
		fds = append(fds, fd)
		lock := unix.Flock_t{Type: unix.F_RDLCK, Start: hold(peer), Len: 1}
		if err = unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock); err != nil {
			break
		}
	}
	if err != nil {
		closeAll(fds)
		return nil, fmt.Errorf("open a region for client %d of index %s: %w", peer.Client, peer.Index, err)
	}
	return fds, nil
}

// free reports whether no process can change the memory through a session of peer.
func (f holds) free(peer verbs.Peer) (bool, error) {
	for _, file := range f {
		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: hold(peer), Len: 1}
		if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
			return false, fmt.Errorf("ask who maps %s: %w", file.Name(), err)
		}
		if lock.Type != unix.F_UNLCK {
			return false, nil
		}
	}
	return true, nil
}

// check tries out that the system can do all this.
func (f holds) check() error {
	nobody := verbs.Peer{}
	fds, err := f.open(nobody)
	if err != nil {
		return err
	}
	free, err := f.free(nobody)
	closeAll(fds)
	if err == nil && free {
		err = fmt.Errorf("the file system of %s does not keep locks", f[0].Name())
	}
	return err
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// process names the process at the other end of a socket, for messages.
func process(c net.Conn) string {
	pid := int32(0)
	if u, ok := c.(*net.UnixConn); ok {
		if raw, err := u.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) {
				if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
					pid = cred.Pid
				}
			})
		}
	}
	if pid == 0 {
		return "a process of another namespace"
	}
	return fmt.Sprint("process ", pid)
}
