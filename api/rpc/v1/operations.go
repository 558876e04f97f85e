package rpcv1

import "strings"

// Traits are what those know of a kind of operation that pass operations on: which rights it needs,
// whether a lost answer leaves it in doubt, and how much its outcome may hold. What it does is
// known to the engine alone.
type Traits struct {
	// Reads is set where the outcome says something of the value that the key has: the caller needs
	// the right to read it.
	Reads bool
	// Changes is set where the pair may be another one afterwards: the caller needs the right to
	// write it. Where the answer is lost it is unknown whether it was done, or will be.
	Changes bool
	// Repeatable is set where two of it leave, and answer, what one does: a sender may repeat it
	// although it may have been done.
	Repeatable bool
	// Value is set where the outcome may have a value, as long as those of the index.
	Value bool
	// Stores is set where the key gets Operation.value.
	Stores bool
	// Removes is set where the pair goes.
	Removes bool
	// Conditional is set where Operation.condition counts. It must not be set for another kind. One
	// on the value may only be set where the outcome may say something of that: see Takes.
	Conditional bool
	// Timed is set where Operation.expiry counts. It must be KEEP for another kind.
	Timed bool
	// Hash is set where the value is a hash. An index whose pairs do not expire has none.
	Hash bool
	// Set is set where the value is the head of a sorted set. An index whose pairs do not expire
	// has none. Programs do not ask for it, but for SET_ADD.
	Set bool
	// Looks is set where a lookup of the index answers it: several are looked up together.
	Looks bool
}

// traits has every kind of this version.
var traits = [...]Traits{
	Operation_LOOKUP: {Reads: true, Repeatable: true, Value: true, Looks: true},
	Operation_INSERT: {Changes: true, Stores: true},
	Operation_UPDATE: {Changes: true, Stores: true},
	Operation_UPSERT: {Changes: true, Stores: true, Repeatable: true},
	Operation_DELETE: {Changes: true, Removes: true},

	Operation_INCREMENT:       {Reads: true, Changes: true},
	Operation_INCREMENT_FLOAT: {Reads: true, Changes: true, Value: true},
	Operation_APPEND:          {Changes: true},
	Operation_SET_RANGE:       {Changes: true},
	Operation_EXCHANGE:        {Reads: true, Changes: true, Stores: true, Value: true, Conditional: true},
	Operation_REMOVE:          {Reads: true, Changes: true, Removes: true, Value: true, Conditional: true},

	Operation_STORE:    {Changes: true, Stores: true, Conditional: true, Timed: true},
	Operation_SWAP:     {Reads: true, Changes: true, Stores: true, Value: true, Conditional: true, Timed: true},
	Operation_EXPIRE:   {Changes: true, Conditional: true, Timed: true},
	Operation_DEADLINE: {Reads: true, Repeatable: true, Timed: true},
	Operation_TOUCH:    {Reads: true, Changes: true, Value: true, Timed: true},

	Operation_HASH_GET:             {Reads: true, Repeatable: true, Value: true, Hash: true},
	Operation_HASH_READ:            {Reads: true, Repeatable: true, Value: true, Hash: true},
	Operation_HASH_SET:             {Changes: true, Conditional: true, Hash: true},
	Operation_HASH_DELETE:          {Changes: true, Hash: true},
	Operation_HASH_INCREMENT:       {Reads: true, Changes: true, Hash: true},
	Operation_HASH_INCREMENT_FLOAT: {Reads: true, Changes: true, Value: true, Hash: true},
	Operation_HASH_STORE:           {Changes: true, Stores: true, Conditional: true, Timed: true, Hash: true},

	Operation_SET_HEAD:      {Reads: true, Repeatable: true, Value: true, Set: true},
	Operation_SET_SWAP_HEAD: {Reads: true, Changes: true, Set: true},

	Operation_DIGEST: {Reads: true, Repeatable: true, Value: true},
	Operation_GROUP:  {Reads: true, Changes: true, Value: true},

	Operation_SCRIPT:      {Reads: true, Changes: true, Value: true},
	Operation_SCRIPT_READ: {Reads: true, Repeatable: true, Value: true},

	Operation_SET_MEMBER: {Reads: true, Changes: true, Value: true, Set: true},

	Operation_SET_ADD: {Reads: true, Changes: true, Repeatable: true, Conditional: true, Timed: true, Set: true},
}

// Kinds is one more than the highest kind that this version knows.
const Kinds = Operation_Kind(len(traits))

// Known reports whether this version knows the kind. It is refused otherwise: which rights it
// needs, and whether it may be repeated, is not known.
func (x Operation_Kind) Known() bool {
	return x > Operation_KIND_UNSPECIFIED && x < Kinds
}

// Traits returns what is known of a kind. One that this version does not know may do anything. They
// are not to be changed.
func (x Operation_Kind) Traits() *Traits {
	if !x.Known() {
		return &anything
	}
	return &traits[x]
}

var anything = Traits{Changes: true}

// Takes reports whether operations of the kind may have the condition, and this version knows it.
// Those on a deadline are for what has one to give and no value.
func (x Operation_Kind) Takes(on Operation_Condition) bool {
	is := x.Traits()
	switch {
	case on == Operation_ALWAYS:
		return true
	case !is.Conditional || Operation_Condition_name[int32(on)] == "":
		return false
	case on >= Operation_ENDLESS:
		return x == Operation_EXPIRE
	}
	return x != Operation_EXPIRE && (on <= Operation_PRESENT || is.Reads) && (x != Operation_HASH_SET && x != Operation_SET_ADD || on == Operation_ABSENT)
}

// Repeatable reports whether two of the operation leave, and answer, what one does. It is so where
// Traits.Repeatable says it, and of a STORE and a HASH_STORE whose pair expires at a moment or
// never: other deadlines count from now, or are those that somebody else has set meanwhile.
func (x *Operation) Repeatable() bool {
	is := x.Kind.Traits()
	return is.Repeatable || is.Timed && is.Stores && !is.Reads && x.Condition == Operation_ALWAYS &&
		(x.Expiry == Operation_AT || x.Expiry == Operation_NEVER)
}

// Expires reports whether the operation asks for a deadline, which only an index has whose pairs
// may expire.
func (x *Operation) Expires() bool {
	return x.Kind.Traits().Changes && x.Expiry >= Operation_AFTER
}

// Label is the kind's name in metrics.
func (x Operation_Kind) Label() string {
	return strings.ToLower(strings.TrimPrefix(x.String(), "KIND_"))
}

// Meaning is what an outcome code says, whatever the operation.
type Meaning struct {
	// Answer is set where the index answered: the operation was done, or the pair was not one for
	// which it is done. Every other code is an error.
	Answer bool
	// Pair is set where the code says something of the pair, as every answer does: it counts only
	// if the session that said so held its leases, and what it saw is durable.
	Pair bool
	// Healthy is set where the session that said so can be used: the code is of the one operation.
	Healthy bool
	// Caller is set where the operation is one that no server of this version does: which one was
	// asked says nothing.
	Caller bool
	// Retry is set where nothing was done, and another try may do it.
	Retry bool
	// Word begins the error in a protocol of text.
	Word string
}

// meanings has every code of this version.
var meanings = [...]Meaning{
	Outcome_OK:             {Answer: true, Pair: true, Healthy: true},
	Outcome_NOT_FOUND:      {Answer: true, Pair: true, Healthy: true},
	Outcome_ALREADY_EXISTS: {Answer: true, Pair: true, Healthy: true},
	Outcome_INVALID:        {Healthy: true, Caller: true, Word: "ERR"},
	Outcome_POOL_FULL:      {Healthy: true, Word: "POOLFULL"},
	Outcome_NOT_OWNER:      {Healthy: true, Retry: true, Word: "UNAVAILABLE"},
	Outcome_UNAVAILABLE:    {Retry: true, Word: "UNAVAILABLE"},
	Outcome_UNKNOWN:        {Word: "UNKNOWN"},
	Outcome_DATA_LOST:      {Word: "DATALOST"},
	Outcome_TIMED_OUT:      {Retry: true, Word: "TIMEOUT"},
	Outcome_UNSUPPORTED:    {Healthy: true, Word: "ERR"},
	Outcome_LATER:          {Word: "ERR"},
	Outcome_DENIED:         {Healthy: true, Word: "ERR"},
	Outcome_MISMATCH:       {Answer: true, Pair: true, Healthy: true},
	Outcome_WRONG_TYPE:     {Pair: true, Healthy: true, Caller: true, Word: "WRONGTYPE"},
	Outcome_WRONG_VALUE:    {Pair: true, Healthy: true, Caller: true, Word: "ERR"},
}

// Meaning returns what a code says. One that this version does not know is an error of which
// nothing more is known. It is not to be changed.
func (x Outcome_Code) Meaning() *Meaning {
	if x < 0 || int(x) >= len(meanings) {
		return &someError
	}
	return &meanings[x]
}

var someError = Meaning{Word: "ERR"}
