package resp

import (
	"fmt"

	"github.com/dmindex/dmindex/computeserver/pubsub"
	"github.com/dmindex/dmindex/computeserver/users"
)

// right is what a user needs for a command beside the rights of its operation (rpcv1.Traits).
type right uint8

const (
	// what its operation needs for its keys, or nothing; SCAN shows no more than a user may read
	noRight     right = iota
	toReadRange       // all keys from the first argument to the second
	toReadAll         // every key of the index
	toChangeAll
	toSeeAll         // every command
	toUseChannels    // anything of channels
	toPublish        // the channel that is the first argument
	toHear           // the channels that are the arguments
	toHearByPatterns // all channels that match one of the arguments
)

// mayRun reports whether the user may run a command with these arguments.
func (c *conn) mayRun(k *command, args [][]byte) bool {
	user := c.login.User()
	switch k.needs {
	case toReadRange:
		return user.MayReadRange(args[1], args[2])
	case toReadAll:
		return user.ReadsAll()
	case toChangeAll:
		return changesAll(user)
	case toSeeAll:
		return seesAll(user)
	case toUseChannels:
		return user.MayUseChannels()
	case toPublish:
		return user.MayUseChannel(args[1])
	case toHear:
		return c.maySubscribe(pubsub.Channels, args[1:])
	case toHearByPatterns:
		return c.maySubscribe(pubsub.Patterns, args[1:])
	}
	if k.counted || k.paired {
		may := true
		k.eachKey(args, func(key []byte) bool { may = user.May(k.is.Reads, k.is.Changes, key); return may })
		return may
	}
	if k.single {
		return user.May(k.is.Reads, k.is.Changes, args[1])
	}
	is, last := k.is, k.keys.lastKey(len(args))
	for i := k.keys.first; k.kind.Known() && i <= last; i += k.keys.step {
		if !user.May(is.Reads, is.Changes, args[i]) {
			return false
		}
	}
	return true
}

// changesAll reports whether the user may read and delete every key.
func changesAll(user *users.User) bool { return user.ReadsAll() && user.MayWrite(nil) }

// noPermission is the error of Redis where it has one for the case.
func noPermission(k *command, user *users.User) string {
	switch {
	case k.needs == toReadAll:
		return fmt.Sprintf("NOPERM User %s may not read every key, which '%s' does", user.Name(), k.name)
	case k.needs == toChangeAll:
		return fmt.Sprintf("NOPERM User %s may not delete every key, which '%s' does", user.Name(), k.name)
	case k.needs == toSeeAll:
		return fmt.Sprintf("NOPERM User %s may not see every command, which '%s' shows: it needs the rights to read and to write every key, and to use every channel", user.Name(), k.name)
	case k.needs == toReadRange:
		return fmt.Sprintf("NOPERM User %s may not read every key of this range; ask for one within the user's prefixes", user.Name())
	}
	switch k.needs {
	case toUseChannels:
		return fmt.Sprintf("NOPERM User %s has no permissions to run the '%s' command", user.Name(), k.name)
	case toPublish, toHear, toHearByPatterns:
		return errNoChannel
	}
	return "NOPERM No permissions to access a key"
}

// cmdACL is ACL WHOAMI. Users are changed in their Secret only.
func (c *conn) cmdACL(args [][]byte) {
	if !isWord(args[1], "WHOAMI") || len(args) != 2 {
		c.replyError(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.64s'. WHOAMI is possible; users are changed in the Secret that the index names.", args[1]))
		return
	}
	c.replyBulk([]byte(c.login.User().Name()))
}
