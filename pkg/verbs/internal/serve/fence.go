package serve

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// How often Fence looks whether a client that ended without a word is gone.
const (
	firstLook   = 100 * time.Microsecond
	longestLook = 20 * time.Millisecond
)

// Fence implements verbs.Server.
func (s *Server) Fence(match func(verbs.Peer) bool, limit time.Duration) error {
	list := s.matching(match)
	for _, e := range list {
		s.beginCut(e)
	}
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	over := false
	var left []string
	for _, e := range list {
		if !over {
			select {
			case <-e.done:
			case <-timeout.C:
				over = true
			}
		}
		select {
		case <-e.done:
		default:
			left = append(left, s.name(e.Peer))
		}
	}
	for look := firstLook; ; look = min(2*look, longestLook) {
		loud, err := s.loud(match)
		if err != nil {
			return err
		}
		if len(loud) == 0 || over {
			left = append(left, loud...)
			break
		}
		select {
		case <-time.After(look):
		case <-timeout.C:
			over = true
		}
	}
	if len(left) == 0 {
		return nil
	}
	slices.Sort(left)
	return fmt.Errorf("%w: not known to have stopped: %s", verbs.ErrTimeout, strings.Join(slices.Compact(left), ", "))
}

// loud names those who match and are not quiet, and forgets the others.
func (s *Server) loud(match func(verbs.Peer) bool) (names []string, failed error) {
	if s.p.Quiet == nil {
		return nil, nil
	}
	var peers []verbs.Peer
	s.mu.Lock()
	for peer := range s.lasting {
		if match(peer) {
			peers = append(peers, peer)
		}
	}
	s.mu.Unlock()
	for _, peer := range peers {
		quiet, err := s.settle(peer)
		if err != nil {
			failed = errors.Join(failed, err)
		} else if !quiet {
			names = append(names, s.name(peer))
		}
	}
	return names, failed
}

// settle forgets peer if it is quiet and has no session.
func (s *Server) settle(peer verbs.Peer) (quiet bool, err error) {
	if s.p.Quiet == nil {
		return true, nil
	}
	s.admitting.Lock() // who is being admitted holds nothing yet
	defer s.admitting.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.sessions {
		if e.Peer == peer {
			return false, nil
		}
	}
	if quiet, err = s.p.Quiet(peer); quiet && err == nil {
		delete(s.lasting, peer)
	}
	return quiet, err
}

// Quiet implements verbs.Lasting.
func (s *Server) Quiet(peer verbs.Peer) error {
	quiet, err := s.settle(peer)
	if err == nil && !quiet {
		err = fmt.Errorf("%w: not known to have stopped: %s", verbs.ErrTimeout, s.name(peer))
	}
	return err
}

// name is who peer is, for messages.
func (s *Server) name(peer verbs.Peer) string {
	name := fmt.Sprintf("client %d of index %s", peer.Client, peer.Index)
	s.mu.Lock()
	process := s.lasting[peer]
	s.mu.Unlock()
	if process != "" {
		name += " (" + process + ")"
	}
	return name
}

func (s *Server) process(c net.Conn) string {
	if s.p.Process == nil {
		return ""
	}
	return s.p.Process(c)
}
