// Package register is what a history of point operations on an index is judged by: every key is a
// register that is there or is not, and a history is linearizable if that of each key is.
package register

import (
	"errors"
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/dmindex/dmindex/pkg/index"
)

// Verb is what an operation does.
type Verb uint8

// The verbs.
const (
	Lookup Verb = iota
	Insert
	Update
	Upsert
	Delete
	Modify // see Decide
	NumVerbs
)

var verbNames = [NumVerbs]string{"lookup", "insert", "update", "upsert", "delete", "modify"}

// String is the verb's name.
func (v Verb) String() string { return verbNames[v] }

// Changes reports whether the verb takes a value.
func (v Verb) Changes() bool { return v != Lookup && v != Delete }

// Input is an operation.
type Input struct {
	Verb       Verb
	Key, Value string
}

// Output is its answer.
type Output struct {
	Found bool   // the key was there
	Value string // of a lookup; what a modification was told

	// Unknown says that the operation has no answer: it takes effect at some time after its call,
	// or never. Its Return is then Never.
	Unknown bool
}

// Never is when an operation without an answer returns.
const Never int64 = 1<<63 - 1

// Perform runs an operation in a session. An error is one that is no answer.
func Perform(s index.Session, in Input) (out Output, err error) {
	key, value := []byte(in.Key), []byte(in.Value)
	switch in.Verb {
	case Lookup:
		var v []byte
		v, err = s.Lookup(key, nil)
		out = Output{Found: err == nil, Value: string(v)}
	case Insert:
		err = s.Insert(key, value)
		out.Found = errors.Is(err, index.ErrExists)
	case Update:
		err = s.Update(key, value)
		out.Found = err == nil
	case Upsert:
		err = s.Upsert(key, value)
	case Delete:
		err = s.Delete(key)
		out.Found = err == nil
	case Modify:
		err = s.Modify(key, func(old []byte, found bool) ([]byte, index.Action) {
			out = Output{Found: found, Value: string(old)}
			return value, Decide(in, out)
		})
	}
	if errors.Is(err, index.ErrNotFound) || errors.Is(err, index.ErrExists) {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("%v %x: %w", in.Verb, in.Key, err)
	}
	return out, nil
}

// Decide is what a modification does, by the value that it would put and what it is told.
func Decide(in Input, told Output) index.Action {
	return decide(len(in.Value), len(told.Value))
}

// decide is what Decide says of values of these lengths.
func decide(value, told int) index.Action {
	switch (value + told) % 4 {
	case 0:
		return index.Keep
	case 1:
		return index.Remove
	}
	return index.Put
}

// Model is the sequential model of all keys, for porcupine: its state is the Output of a lookup.
var Model = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		place := map[string]int{}
		for _, o := range history {
			k := o.Input.(Input).Key
			i, ok := place[k]
			if !ok {
				i = len(parts)
				place[k] = i
				parts = append(parts, nil)
			}
			parts[i] = append(parts[i], o)
		}
		return parts
	},
	Init: func() any { return Output{} },
	Step: func(state, in, out any) (bool, any) {
		now, i, o := state.(Output), in.(Input), out.(Output)
		if o.Unknown {
			o.Found, o.Value = now.Found, now.Value
		}
		if i.Verb != Upsert && o.Found != now.Found {
			return false, state
		}
		switch i.Verb {
		case Lookup:
			return o.Value == now.Value, state
		case Insert:
			if now.Found {
				return true, state
			}
		case Update:
			if !now.Found {
				return true, state
			}
		case Delete:
			return true, Output{}
		case Modify:
			if o.Value != now.Value {
				return false, state
			}
			switch Decide(i, now) {
			case index.Keep:
				return true, state
			case index.Remove:
				return true, Output{}
			}
		}
		return true, Output{Found: true, Value: i.Value}
	},
	DescribeOperation: func(in, out any) string {
		i, o := in.(Input), out.(Output)
		if o.Unknown {
			return fmt.Sprintf("%v(%x, %q) -> ?", i.Verb, i.Key, i.Value)
		}
		return fmt.Sprintf("%v(%x, %q) -> %v %q", i.Verb, i.Key, i.Value, o.Found, o.Value)
	},
}
