package build

import (
	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/pkg/settings"
)

// ComputeSettings are those of a compute pool that its servers take while they run.
func ComputeSettings(pool *dmv1.DMComputePool) settings.Settings {
	from := pool.Spec.Settings
	s := settings.Settings{MaxConnections: int64(from.MaxConnections), IdleTimeoutSeconds: int64(from.IdleTimeoutSeconds), LogLevel: string(from.LogLevel)}
	if from.SlowLogMicroseconds != nil {
		slow := int64(*from.SlowLogMicroseconds)
		s.SlowLogMicroseconds = &slow
	}
	return s
}

// MemorySettings are those of a memory pool.
func MemorySettings(pool *dmv1.DMMemoryPool) settings.Settings {
	return settings.Settings{LogLevel: string(pool.Spec.Settings.LogLevel)}
}

// Settle gives the TLS Secret of a pool's servers their settings. Of a paused pool they stay as
// they are in the Secret that there is. A Secret without settings has no file: nothing changes for
// pools that say nothing.
func Settle(secret, before *corev1.Secret, paused bool, s settings.Settings) error {
	if paused {
		if former, has := before.Data[settings.FileName]; has {
			secret.Data[settings.FileName] = former
		}
		return nil
	}
	if s == (settings.Settings{}) {
		return nil
	}
	data, err := settings.Append(nil, s)
	secret.Data[settings.FileName] = data
	return err
}
