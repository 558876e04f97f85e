package computeserver

import (
	"cmp"
	"time"

	"github.com/dmindex/dmindex/computeserver/resp"
	"github.com/dmindex/dmindex/pkg/settings"
)

// limitsNow are the bounds of programs' connections that settings and, where those say nothing, the
// configuration give.
func (c *Config) limitsNow() resp.Limits {
	l := resp.Limits{MaxConnections: c.MaxConnections, Idle: c.Idle, SlowAfter: c.SlowAfter}
	if c.Settings == nil {
		return l
	}
	s := c.Settings.Settings()
	l.MaxConnections = cmp.Or(int(s.MaxConnections), l.MaxConnections)
	l.Idle = cmp.Or(time.Duration(s.IdleTimeoutSeconds)*time.Second, l.Idle)
	if s.SlowLogMicroseconds != nil {
		l.SlowAfter = time.Duration(*s.SlowLogMicroseconds) * time.Microsecond
	}
	return l
}

// applySettings puts what the file says now in force. Connections that are open stay, also those
// beyond a lower bound.
func (s *Server) applySettings(settings.Settings) {
	l := s.cfg.limitsNow()
	s.gate.most.Store(int64(l.MaxConnections))
	s.resp.SetLimits(l)
}

// settingsRefused is what of the newest settings is not in force; empty if all is.
func (s *Server) settingsRefused() string {
	if s.cfg.Settings == nil || s.cfg.Settings.Err() == nil {
		return ""
	}
	return s.cfg.Settings.Err().Error()
}
