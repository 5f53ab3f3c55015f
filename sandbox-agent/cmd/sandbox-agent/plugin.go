package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
	"github.com/fairlead/fairlead/sandbox-agent/internal/bridge"
	"github.com/fairlead/fairlead/sandbox-agent/internal/plugin"
)

// pluginWait is how long a program may take to listen at its port.
const pluginWait = 10 * time.Second

// offerPlugin is the subcommand by which programs in terminals register plugins.
func offerPlugin(c *program.Command) {
	var name, port string
	wait := pluginWait
	c.Describe(`Makes a program in this terminal a plugin of the session: who may use plugins
there opens its WebSocket through a relay at /plugin-ws/NAME. The program listens
on PORT of 127.0.0.1 and serves a WebSocket at /ws; start it first, or at the same
time:

  node server.js --port 4000 &
  sandbox-agent plugin charts 4000

NAME is 1 to ` + strconv.Itoa(pluginsocket.MaxName) + ` letters, digits, _ or -. It is this terminal's in the session
until the program no longer listens or the terminal ends; a second terminal is
refused it. PORT must be one that a program of this terminal listens on. Nothing
need be undone: a plugin ends with its port. One that is started again registers
again. The program gets messages of at most 1 MiB, and is told nothing of who
sends them: neither cookies nor credentials, origin or address.`)
	c.Arg(&name, "NAME")
	c.Arg(&port, "PORT")
	c.Duration(&wait, "wait", wait, "how long the program may take to listen, a `time`")
	c.Run(func(ctx context.Context, env *program.Env) error {
		number, err := strconv.Atoi(port)
		if err != nil {
			return fmt.Errorf("%q is no port", port)
		}
		file := ""
		if home, err := os.UserHomeDir(); err == nil {
			file = filepath.Join(home, credentialsFile)
		}
		credentials, err := bridge.Find(os.Getenv, file)
		if err != nil {
			return err
		}
		info, err := plugin.Offer(ctx, credentials, pluginsocket.Offer{Name: name, Port: number}, wait)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(env.Stdout, "/plugin-ws/%s leads to port %d of this terminal\n", info.Name, info.Port)
		return err
	})
}
