package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/backup"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/dumpfile"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/version"
)

func backupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "backup",
		GroupID: "serve",
		Short:   "Work on the artifact of a DMBackup",
	}
	cmd.AddCommand(backupCreateCommand(), backupRestoreCommand(), backupDeleteCommand())
	return cmd
}

// backupJob is what the commands of backups have in common.
type backupJob struct {
	dir, artifact, report, encryption string
	s3                                backup.S3Config
}

func (j *backupJob) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&j.dir, "dir", "", "folder of the artifacts, which must exist")
	f.StringVar(&j.s3.Endpoint, "s3-endpoint", "", "URL of an S3 server, in place of a folder")
	f.StringVar(&j.s3.Bucket, "s3-bucket", "", "bucket of the S3 server, which must exist")
	f.StringVar(&j.s3.Region, "s3-region", "", "region of the bucket; empty = the server says")
	f.StringVar(&j.s3.Proxy, "s3-proxy", "", "URL of the HTTP proxy through which the S3 server is reached; empty = as HTTPS_PROXY, HTTP_PROXY and NO_PROXY say")
	f.StringVar(&j.s3.CredentialsDir, "s3-credentials", "", "folder with the files "+config.S3AccessKey+", "+config.S3SecretKey+" and, if they are needed, "+config.S3SessionToken+" and "+config.S3CA)
	f.StringVar(&j.encryption, "encryption", "", "folder with the file "+config.BackupIdentities+": identities of age, with which artifacts are encrypted; empty = they are not")
	f.StringVar(&j.artifact, "artifact", "", "path of the artifact below the folder, or name of the object")
	f.StringVar(&j.report, "report", "", "file for the report, as JSON; empty = none")
}

// run opens the store and does the work. What became of it is reported, errors included.
func (j *backupJob) run(ctx context.Context, do func(context.Context, backup.Store) (config.BackupReport, error)) error {
	report, err := j.do(ctx, do)
	if err != nil {
		report = config.BackupReport{Error: backup.Message(err)}
	}
	if j.report == "" {
		return err
	}
	text, failed := report.Marshal()
	if failed == nil {
		failed = os.WriteFile(j.report, text, 0o600)
	}
	if failed != nil {
		failed = fmt.Errorf("write the report: %w", failed)
	}
	return errors.Join(err, failed)
}

func (j *backupJob) do(ctx context.Context, do func(context.Context, backup.Store) (config.BackupReport, error)) (report config.BackupReport, err error) {
	if (j.dir == "") == (j.s3.Endpoint == "") || j.artifact == "" {
		return report, errors.New("name the folder with --dir, or the server with --s3-endpoint, and the artifact with --artifact")
	}
	if j.s3.Endpoint != "" {
		if j.s3.Bucket == "" || j.s3.CredentialsDir == "" {
			return report, errors.New("an S3 server needs --s3-bucket and --s3-credentials")
		}
		store, err := backup.OpenS3(j.s3)
		if err != nil {
			return report, err
		}
		return j.with(ctx, store, do)
	}
	store, err := backup.OpenDirectory(j.dir)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return j.with(ctx, store, do)
}

// with does the work with a store, encrypted if it is to be.
func (j *backupJob) with(ctx context.Context, s backup.Store, do func(context.Context, backup.Store) (config.BackupReport, error)) (report config.BackupReport, err error) {
	if j.encryption != "" {
		if s, err = backup.Encrypt(s, j.encryption); err != nil {
			return report, err
		}
	}
	return do(ctx, s)
}

func backupCreateCommand() *cobra.Command {
	var j backupJob
	var a access
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Dump an index to an artifact and read that back",
		Long: `Create dumps the whole index, as dump does, and reads the artifact back. An artifact that is there already was completed by an
earlier attempt: it is read back, and nothing is dumped.`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := newProgress(cmd.ErrOrStderr(), "dumped")
		return j.run(cmd.Context(), func(ctx context.Context, s backup.Store) (report config.BackupReport, err error) {
			err = a.with(ctx, func(c *client.Client) error {
				d := dumpfile.Description{Index: c.Map().Index, Created: time.Now().UTC(), Program: version.String()}
				report, err = backup.Create(ctx, c, s, j.artifact, d, p.at)
				return err
			})
			if err == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s has %d pairs in %d bytes and was read back: digest %s\n", j.artifact, report.Keys, report.Bytes, report.Digest)
			}
			return report, err
		})
	}
	j.flags(cmd)
	a.flags(cmd)
	return cmd
}

func backupRestoreCommand() *cobra.Command {
	var j backupJob
	var a access
	var digest string
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Load an index from an artifact, and compare both",
		Long: `Restore compares the artifact with its digest and with the index, puts its pairs, and compares once more. An index with keys that are not
the artifact's is refused before anything is put. What an earlier attempt put is none of these, so a restore can be repeated.`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := newProgress(cmd.ErrOrStderr(), "restored")
		return j.run(cmd.Context(), func(ctx context.Context, s backup.Store) (report config.BackupReport, err error) {
			err = a.with(ctx, func(c *client.Client) error {
				report, err = backup.Restore(ctx, c, s, j.artifact, digest, p.at)
				return err
			})
			if err == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "the index has the %d pairs of %s: digest %s\n", report.Keys, j.artifact, report.Digest)
			}
			return report, err
		})
	}
	j.flags(cmd)
	a.flags(cmd)
	cmd.Flags().StringVar(&digest, "digest", "", "SHA-256 that the artifact must have, in hex; empty = any")
	return cmd
}

func backupDeleteCommand() *cobra.Command {
	var j backupJob
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Delete an artifact and what unfinished attempts at it left",
		Args:  cobra.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return j.run(cmd.Context(), func(ctx context.Context, s backup.Store) (config.BackupReport, error) {
			return config.BackupReport{}, s.Delete(ctx, j.artifact)
		})
	}
	j.flags(cmd)
	return cmd
}
