package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/codec"
	"github.com/tempool/tempool/internal/loopback"
)

func (a *app) codecServerCommand() *cobra.Command {
	var listen string
	var origins []string
	c := a.localCommand(&cobra.Command{
		Use:   "codec-server",
		Short: "Decrypt payloads for the Temporal Web UI and CLI on this machine",
		Long: `Serve the codec of --payload-keys to the Temporal Web UI and CLI of this machine until Ctrl-C. In the
Web UI, set the address as the codec endpoint; for the CLI, pass it as --codec-endpoint, as in temporal workflow show
-w tempool/python --codec-endpoint http://127.0.0.1:8234.`,
		Example: `  tempool codec-server --payload-keys keys`,
	}, func(ctx context.Context, _ []string) error {
		payloads, err := a.options.Payloads.LocalCodec()
		if err != nil {
			return err
		}
		listener, err := net.Listen("tcp", listen)
		if err != nil {
			return api.Errorf(api.CodeUnavailable, "cannot listen on %s; free the address or choose another with --listen: %w",
				listen, err)
		}
		address := "http://" + listener.Addr().String()
		if err := a.printMessage(map[string]string{"endpoint": address}, "The codec server listens at %s.",
			address); err != nil {
			return errors.Join(err, listener.Close())
		}
		server := &http.Server{Handler: codec.Server(payloads, origins), ReadTimeout: 10 * time.Second,
			WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute}
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	flags := c.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:8234",
		"loopback address to listen on; everyone who reaches it may decrypt")
	flags.StringSliceVar(&origins, "origin", []string{"http://localhost:8233", "http://127.0.0.1:8233"},
		"origins of Web UI pages that may use the server")
	checkFlags(c, func(*cobra.Command) error {
		if !loopback.Address(listen) {
			return usagef("--listen is %q; the server decrypts for everyone who reaches it, so it needs a loopback "+
				"address, such as 127.0.0.1:8234", listen)
		}
		return nil
	})
	return c
}
