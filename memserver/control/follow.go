//env:real calls of gRPC are not simulated

package control

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

const (
	viewWait = 20 * time.Second // of one long poll
	// between two questions to one copy: at least, and after failures or answers without news,
	// doubled up to
	pauseLeast = 50 * time.Millisecond
	pauseMost  = 2 * time.Second
	pauseOpens = 400 * time.Millisecond // the same, while a copy opens
	// pauseOlder is between two questions to a server of a version that knows no views. Another
	// version may take its place.
	pauseOlder = time.Minute
)

// startAsking lets the copies be asked for their views from now on. Over other providers than tcp
// no server has copies. s.mu is held.
func (s *serverConn) startAsking() {
	if s.asks || s.Provider != "tcp" && len(s.copies) == 1 || s.all.ctx.Err() != nil {
		return
	}
	s.asks = true
	for _, k := range s.copies {
		s.all.follows.Go(func() { s.follow(k) })
	}
}

// follow asks one copy for its view, again and again, until the client is closed or the copy is not
// one any more.
func (s *serverConn) follow(k *copyConn) {
	known, pause, wait := uint64(0), pauseLeast, time.Duration(0) // the first answer comes at once
	for {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(k.ctx, wait+lookLimit)
		reply, err := k.volume.AwaitView(ctx, &rpcv1.AwaitViewRequest{Volume: uint32(s.ID), After: known, WaitMilliseconds: uint32(wait.Milliseconds())})
		cancel()
		if k.ctx.Err() != nil {
			return
		}
		least := pause - time.Since(begun)
		switch number := reply.GetView().GetNumber(); {
		case status.Code(err) == codes.Unimplemented:
			least = pauseOlder
		case err != nil:
			pause = min(2*pause, pauseMost)
		case number > known && s.takeView(k, reply):
			known, pause, least = number, pauseLeast, pauseLeast
		case number > known: // its primary is about to serve
			pause = min(2*pause, pauseOpens)
		case least <= 0:
			pause = pauseLeast
		case wait > 0: // too many wait there
			pause = min(2*pause, pauseMost)
		}
		if err == nil {
			wait = viewWait
		}
		s.mu.Lock()
		k.asked, k.serves, k.servesIn, k.failed = true, reply.GetServes(), 0, err != nil
		if reply.GetServes() {
			k.servesIn = reply.GetView().GetNumber()
		}
		left, other := s.findPrimary()
		s.wakeWaiters()
		s.mu.Unlock()
		if s.tellWatchers(left); other {
			s.all.tellNews()
		}
		if least > 0 {
			rest := time.NewTimer(least)
			select {
			case <-rest.C:
			case <-k.ctx.Done():
				rest.Stop()
				return
			}
		}
	}
}

// wakeWaiters wakes who waits for what copies say. s.mu is held.
func (s *serverConn) wakeWaiters() {
	close(s.heard)
	s.heard = make(chan struct{})
}

// takeView takes the view that a copy is in, and reports whether it is of use already. It is not
// while nobody is known to serve in it: the copy that opens says its view before it serves.
func (s *serverConn) takeView(k *copyConn, reply *rpcv1.AwaitViewReply) bool {
	view := reply.View
	var primary string
	var named []string
	for _, c := range reply.Copies {
		if !validAddress(c.Control) || len(named) == maxCopies {
			continue
		}
		named = append(named, c.Control)
		if c.Pod == view.GetPrimary().GetPod() {
			primary = c.Control
		}
	}
	s.mu.Lock()
	switch own := s.find(primary); {
	case reply.Serves && own != nil && own.asked && !own.failed:
	case reply.Serves: // at whichever address its copies know it by
		primary = k.address
	case primary == "", primary == k.address:
		s.mu.Unlock()
		return false
	}
	if view.Number <= s.view {
		s.mu.Unlock()
		return true
	}
	another := s.pod != "" && s.pod != view.GetPrimary().GetPod()
	s.view, s.pod, s.named = view.Number, view.GetPrimary().GetPod(), append([]string{primary}, named...)
	s.setCopies()
	s.best = s.find(primary)
	var left []*watcher
	if s.best != nil && s.turn != nil && (another || s.turn.at != s.best) {
		left = s.begin(s.best)
	}
	s.mu.Unlock()
	s.tellWatchers(left)
	s.all.tellNews()
	return true
}

// tellNews tells that a memory server may be reached that could not be before.
func (s *servers) tellNews() {
	s.mu.Lock()
	news := slices.Clone(s.news)
	s.mu.Unlock()
	for _, f := range news {
		f()
	}
}
