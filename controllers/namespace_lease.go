package controllers

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

// Two operators that watch one namespace would undo what the other one does: a second release may
// be told to, by mistake or while indexes pass from one to the other. So each namespace with
// objects of ours has a Lease, which says which operator looks after them:
//
//	there is none                        the first one makes it, and works there
//	of this operator's namespace         it works there, and renews it every leaseRenew
//	of another one                       it leaves the namespace alone, and says so
//	of another one, unchanged for        it takes it over: the other one is gone
//	leaseSeconds, as this one saw it
//
// Operators are told apart by their own namespaces: in each of these one alone leads, by a lease of
// its own (RunOptions.LeaderElect). Nothing is safe only by the Lease. An operator that may not, or
// cannot, read or write it works without it.
const (
	namespaceLease = "dmindex-operator"
	leaseRenew     = 10 * time.Second
	leaseSeconds   = 60
	leaseLimit     = 2 * time.Second  // for the first look, which a reconciler waits for
	leaseUnused    = 10 * time.Minute // until a namespace is forgotten without reconciled objects
	leaseToldAgain = 30 * time.Minute // until an event about another holder is repeated
)

// namespaceLeases are the Leases of the namespaces with objects. Safe for concurrent use.
type namespaceLeases struct {
	self   string // NAMESPACE/RELEASE of this operator; see Options.Holder
	live   client.Reader
	writer client.Writer
	now    func() time.Time

	mu  sync.Mutex
	all map[string]*namespaceHeld // by namespace
}

// namespaceHeld is what is known of one namespace.
type namespaceHeld struct {
	looking sync.Mutex // held while the Lease is read and written

	mu    sync.Mutex
	known bool
	other string // who has it; empty = this operator
	used  time.Time
	told  map[string]time.Time // events about another holder, by kind and name

	// protected by looking
	seen   string // the Lease of another holder, as it was seen last
	since  time.Time
	failed string // the last error, which is logged once
}

func newNamespaceLeases(self string, live client.Reader, writer client.Writer, now func() time.Time) *namespaceLeases {
	return &namespaceLeases{self: self, live: live, writer: writer, now: now, all: map[string]*namespaceHeld{}}
}

// holder returns who looks after a namespace; empty if it is this operator. The first time it reads
// the Lease, and makes it; then Start keeps it.
func (l *namespaceLeases) holder(ctx context.Context, namespace string) string {
	l.mu.Lock()
	h := l.all[namespace]
	if h == nil {
		h = &namespaceHeld{told: map[string]time.Time{}}
		l.all[namespace] = h
	}
	l.mu.Unlock()
	h.mu.Lock()
	h.used = l.now()
	known := h.known
	h.mu.Unlock()
	if !known {
		limited, cancel := context.WithTimeout(ctx, leaseLimit)
		l.look(limited, namespace, h, false)
		cancel()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.other
}

// isOthers reports whether another operator was seen to look after a namespace.
func (l *namespaceLeases) isOthers(namespace string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	h := l.all[namespace]
	l.mu.Unlock()
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.other != ""
}

// Start implements manager.Runnable: while this operator leads it renews what it has, and looks
// whether what others had has become free.
func (l *namespaceLeases) Start(ctx context.Context) error {
	tick := time.NewTicker(leaseRenew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			l.renew(ctx)
		}
	}
}

// renew looks at all namespaces once.
func (l *namespaceLeases) renew(ctx context.Context) {
	var names []string
	var held []*namespaceHeld
	l.mu.Lock()
	for name, h := range l.all {
		h.mu.Lock()
		unused := l.now().Sub(h.used) > leaseUnused
		h.mu.Unlock()
		if unused {
			delete(l.all, name) // the Lease is free for others leaseSeconds later
			continue
		}
		names, held = append(names, name), append(held, h)
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, leaseRenew)
	defer cancel()
	servers.Each(len(names), func(i int) { l.look(ctx, names[i], held[i], true) })
}

// look reads the Lease of a namespace, and makes, renews or takes it over. Where that fails what
// was known before holds on; where nothing was, this operator works there.
func (l *namespaceLeases) look(ctx context.Context, namespace string, h *namespaceHeld, again bool) {
	h.looking.Lock()
	defer h.looking.Unlock()
	h.mu.Lock()
	was, known := h.other, h.known
	h.mu.Unlock()
	if known && !again {
		return // another reconciler looked meanwhile
	}
	other, err := l.settle(ctx, namespace, h)
	log := logf.FromContext(ctx).WithValues("namespace", namespace)
	said := ""
	if err != nil {
		other, said = was, err.Error()
	}
	if said != "" && said != h.failed {
		log.Info("cannot see whether another operator looks after the namespace", "lease", namespaceLease, "error", said)
	}
	h.failed = said
	if err == nil && other != was {
		if other == "" {
			log.Info("take over namespace", "from", sayHolder(was))
		} else {
			log.Info(l.refusal(namespace, other))
		}
	}
	h.mu.Lock()
	h.other, h.known = other, true
	h.mu.Unlock()
}

// settle does what is next for the Lease, and returns who has it if that is another operator.
func (l *namespaceLeases) settle(ctx context.Context, namespace string, h *namespaceHeld) (other string, err error) {
	lease, now := &coordinationv1.Lease{}, l.now()
	err = l.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: namespaceLease}, lease)
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespaceLease}}
		l.fill(lease, now)
		if err = l.writer.Create(ctx, lease, kube.Owner); !apierrors.IsAlreadyExists(err) {
			return "", err
		}
		// somebody was faster
		err = l.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: namespaceLease}, lease)
	}
	if err != nil {
		return "", err
	}
	holder := ""
	if lease.Spec.HolderIdentity != nil {
		holder = *lease.Spec.HolderIdentity
	}
	ours := holder == "" || operatorNamespace(holder) == operatorNamespace(l.self)
	if !ours {
		if seen := string(lease.UID) + lease.ResourceVersion; seen != h.seen {
			h.seen, h.since = seen, now
		}
		// by this clock alone, which need not agree with the one that renewed it
		if now.Sub(h.since) < leaseSeconds*time.Second {
			return holder, nil
		}
	}
	before := lease.DeepCopy()
	l.fill(lease, now)
	err = l.writer.Patch(ctx, lease, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), kube.Owner)
	if !ours && err != nil {
		return holder, client.IgnoreNotFound(conflictIsNone(err))
	}
	return "", err
}

// conflictIsNone is nil for an error that says that the object changed meanwhile.
func conflictIsNone(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// fill makes a Lease this operator's.
func (l *namespaceLeases) fill(lease *coordinationv1.Lease, now time.Time) {
	at, seconds, holder := metav1.NewMicroTime(now), int32(leaseSeconds), l.self
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != holder {
		lease.Spec.HolderIdentity, lease.Spec.AcquireTime = &holder, &at
	}
	lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = &at, &seconds
}

// refusal is why this operator leaves a namespace alone, and what to do.
func (l *namespaceLeases) refusal(namespace, other string) string {
	return fmt.Sprintf("%s looks after namespace %s, and %s watches it as well, so that one leaves it alone: take %s out of the namespaces that one of them watches (chart: watchNamespaces). If the first is gone, the other takes over once Lease %s has not been renewed for %d s",
		sayHolder(other), namespace, sayHolder(l.self), namespace, namespaceLease, leaseSeconds)
}

// operatorNamespace is the namespace of an operator, or the whole name of one in no pod.
func operatorNamespace(holder string) string {
	namespace, _, _ := strings.Cut(holder, "/")
	return namespace
}

// sayHolder is an operator for people.
func sayHolder(holder string) string {
	namespace, release, inPod := strings.Cut(holder, "/")
	switch {
	case !inPod:
		return "the operator " + holder
	case release == "":
		return "the operator of namespace " + namespace
	}
	return "release " + release + " of namespace " + namespace
}
