package main

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/version"
	"github.com/dmindex/dmindex/deviceplugin"
	"github.com/dmindex/dmindex/pkg/logs"
	"github.com/dmindex/dmindex/pkg/profile"
)

func devicePluginCommand() *cobra.Command {
	config := deviceplugin.Config{Version: version.String()}
	var labels bool
	log := logs.FromEnv(logs.Text)
	cmd := &cobra.Command{
		Use:     "device-plugin",
		GroupID: "serve",
		Short:   "Advertise the node's RDMA HCAs to the kubelet",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if config.Log, err = logger(log); err != nil {
				return err
			}
			if labels {
				if config.Labeler, err = deviceplugin.NewNodeLabeler(os.Getenv("NODE_NAME"), version.String()); err != nil {
					return err
				}
			}
			return deviceplugin.Run(cmd.Context(), config)
		},
	}
	f := cmd.Flags()
	log.Add(f)
	f.StringVar(&config.Settings, "settings", "", "file that says what to advertise; empty = dmindex.io/rdma with all HCAs")
	f.StringVar(&config.Sysfs, "sysfs", "/sys", "where the node's /sys is")
	f.StringVar(&config.Dev, "dev", "/dev", "where the node's /dev is for the kubelet")
	f.StringVar(&config.KubeletDir, "kubelet-dir", "/var/lib/kubelet/device-plugins", "the kubelet's folder of device plugins")
	f.StringVar(&config.PodResources, "pod-resources", "", "the kubelet's PodResources socket, used to skip HCAs that other plugins advertise; empty = do not check")
	f.DurationVar(&config.Poll, "poll", 5*time.Second, "how often to look at the node's HCAs")
	f.BoolVar(&labels, "labels", false, "label the node $NODE_NAME with what its HCAs can do")
	f.BoolVar(&config.Pprof, profile.Flag, profile.FromEnv(), profile.Usage)
	f.StringVar(&config.Metrics, "metrics", ":9090", "address of /metrics, /healthz and /readyz; empty = not served")
	return cmd
}

// givenDevice is the RDMA device that the device plugin gave to this container: the first one if it
// gave several, empty if none.
func givenDevice() string {
	first, _, _ := strings.Cut(os.Getenv(deviceplugin.EnvDevice), ",")
	return first
}
