package serverstest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// firstCopy is the number of the first pod that begins as a further copy.
const firstCopy = 1024

// errNotPrimary is what a server says of what only the primary of its volume answers.
var errNotPrimary = errors.New("is not the primary of its volume")

// copyServer is the process of a memory server as a copy of a volume. It
// decides with a volumes.Member, as a real one does. Changes reach a copy at once: its primary and
// it share their content.
type copyServer struct {
	f      *Fleet
	t      servers.Target
	member *volumes.Member
	stored volumes.State
	source *copyServer // whose changes it takes
	ended  bool
}

// Save implements volumes.Host.
func (s *copyServer) Save(state volumes.State) error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.stored = state
	if state.Backup && s.source != nil {
		s.f.memory[s.f.holderLocked(s.t.UID)] = s.f.memoryLocked(s.source.t.UID)
	}
	return nil
}

// Durable implements volumes.Host: what has a claim has files.
func (s *copyServer) Durable() bool { return s.f.holder(s.t.UID) != s.t.UID }

// MayLack implements volumes.Host.
func (s *copyServer) MayLack() bool { return false }

// Restore implements volumes.Host.
func (s *copyServer) Restore() error {
	if s.f.holds(s.t.UID) {
		return nil
	}
	return errors.New("the disk has nothing")
}

// Close implements volumes.Host.
func (s *copyServer) Close() {}

// Prepare implements volumes.Host.
func (s *copyServer) Prepare() error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.source != nil {
		s.f.memory[s.f.holderLocked(s.t.UID)] = s.f.memory[s.f.holderLocked(s.source.t.UID)]
	}
	return nil
}

// Drain implements volumes.Host.
func (s *copyServer) Drain(backup volumes.Proc) error {
	if b := s.f.copyOf(backup.Pod); b == nil || s.f.isAway(b.t) {
		return errAway
	}
	return nil
}

// Return implements volumes.Host.
func (s *copyServer) Return(backup volumes.Proc, turn uint64) {
	if b := s.f.copyOf(backup.Pod); b != nil && !s.f.isAway(b.t) {
		b.member.Return(s.member.Self(), turn)
	}
}

// holds reports whether what has the memory of a pod's server has content.
func (f *Fleet) holds(uid string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.memory[f.holderLocked(uid)] != nil
}

// copyOf is the process of a copy; nil if there is none.
func (f *Fleet) copyOf(uid string) *copyServer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.copies[f.holderLocked(uid)]
}

// End ends the process of a memory server's pod, which is gone.
func (f *Fleet) End(uid string) {
	if s := f.copyOf(uid); s != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		s.ended = true
	}
}

func (f *Fleet) isAway(t servers.Target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.copies[f.holderLocked(t.UID)]; s != nil && s.ended && s.t.UID == t.UID {
		return true
	}
	return f.away[t.Namespace+"/"+t.Pod]
}

// isCopy reports whether a pod was made as a further copy of a volume.
func isCopy(t servers.Target) bool {
	number, err := strconv.Atoi(t.Pod[strings.LastIndexByte(t.Pod, '-')+1:])
	return err == nil && number >= firstCopy
}

// begin starts the process of a pod, or the next one.
func (f *Fleet) begin(t servers.Target) (*copyServer, error) {
	s := f.copyOf(t.UID)
	if s == nil {
		s = &copyServer{f: f, t: t}
		if !isCopy(t) {
			s.stored.Content = volumes.Served
		}
	}
	s.source, s.ended, s.t = nil, false, t
	m, err := volumes.New(env.Real(), f.holder(t.UID), s.stored, s)
	if err != nil {
		return nil, err
	}
	s.member = m
	f.mu.Lock()
	f.copies[f.holderLocked(t.UID)] = s
	f.mu.Unlock()
	return s, m.Start()
}

// Restart ends the process of a memory server's pod; the next one begins.
func (f *Fleet) Restart(uid string) error {
	s := f.copyOf(uid)
	if s == nil {
		return fmt.Errorf("pod %s has no process", uid)
	}
	_, err := f.begin(s.t)
	return err
}

// Wipe restarts the machine of a memory server's pod, which stays: its memory and what it stored
// are gone.
func (f *Fleet) Wipe(uid string) error {
	s := f.copyOf(uid)
	if s == nil {
		return fmt.Errorf("pod %s has no process", uid)
	}
	s.stored = volumes.State{Process: s.stored.Process}
	return f.Restart(uid)
}

// RoleOf is what the process of a memory server's pod is for its volume.
func (f *Fleet) RoleOf(uid string) string {
	if s := f.copyOf(uid); s != nil {
		return s.member.Role().String()
	}
	return "none"
}

// Volume implements servers.Dialer.
func (f *Fleet) Volume(t servers.Target) (servers.Volume, error) {
	if t.Authority == nil || t.UID == "" || t.Address == "" {
		return nil, fmt.Errorf("dial %s: incomplete target %+v", t.Pod, t)
	}
	return &volumeClient{f, t}, nil
}

type volumeClient struct {
	f *Fleet
	t servers.Target
}

func (c *volumeClient) Close() {}

// server is the process that is called. One that was replaced has been followed by the next one.
func (c *volumeClient) server() (s *copyServer, err error) {
	switch {
	case c.f.isAway(c.t):
		return nil, fmt.Errorf("memory server %s %w", c.t.Pod, errAway)
	case c.f.Older:
		return nil, servers.ErrNotOffered
	}
	if s = c.f.copyOf(c.t.UID); s == nil || s.member.Role() == volumes.Replaced || s.t.UID != c.t.UID {
		return c.f.begin(c.t)
	}
	return s, nil
}

// pump lets a primary send what it has and ask for permission.
func (s *copyServer) pump() {
	request, ok := s.member.Ask()
	if !ok {
		return
	}
	for _, target := range s.member.Targets() {
		to := s.f.copyOf(target.Proc.Pod)
		if to == nil || s.f.isAway(to.t) || s.f.isAway(s.t) || to.member.Self() != target.Proc {
			continue
		}
		if to.member.Attach(s.member.Self(), target.Join, s.member.Report().View.Number) != nil {
			continue
		}
		s.f.mu.Lock()
		to.source = s
		held := s.f.heldBack
		s.f.mu.Unlock()
		if to.member.Grant(s.member.Self(), request.Turn) {
			s.member.Permitted(target.Proc, request)
		}
		if held {
			continue
		}
		s.member.Acked(target.Proc, 1)
		if s.member.Report().Joins == target.Proc && s.member.WaitFor(target.Proc, 1, func() uint64 { return 2 }) == nil {
			to.member.Marked(s.member.Self())
			s.member.Acked(target.Proc, 2)
		}
	}
}

// HoldBack keeps joining copies from getting all of the memory.
func (f *Fleet) HoldBack(held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heldBack = held
}

func (c *volumeClient) Report(_ context.Context, _ int, _ string) (servers.VolumeReport, error) {
	s, err := c.server()
	if err != nil {
		return servers.VolumeReport{}, err
	}
	s.pump()
	r := servers.VolumeReport{Report: s.member.Report(), Mirror: "[::]:" + strconv.Itoa(config.PortMirror), Identity: "dmindex://pool/fleet/memory"}
	if r.Joins != (volumes.Proc{}) {
		r.Percent = 50
	}
	return r, nil
}

func (c *volumeClient) note(text string) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.Calls = append(c.f.Calls, text)
}

func (c *volumeClient) Obey(_ context.Context, _ int, v volumes.View, _ []servers.VolumeCopy) error {
	s, err := c.server()
	if err != nil {
		return err
	}
	c.note(fmt.Sprintf("obey %s %d", c.t.Pod, v.Number))
	if s.stored.View == v && s.member.Role() != volumes.Joining {
		return nil // the addresses are others
	}
	return s.member.Obey(v)
}

func (c *volumeClient) Join(_ context.Context, _ int, view uint64, copy volumes.Proc, mirror string, _ uint64) error {
	s, err := c.server()
	if err != nil {
		return err
	}
	c.note(fmt.Sprintf("join %s %s", c.t.Pod, mirror))
	return s.member.Join(view, copy)
}

func (c *volumeClient) Stop(_ context.Context, _ int, view uint64) error {
	s, err := c.server()
	if err != nil {
		return err
	}
	s.pump()
	c.note("stop " + c.t.Pod)
	return s.member.Stop(view)
}
