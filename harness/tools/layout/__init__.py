"""The files of a project: `harness init` makes them, `harness fmt` lays contracts out."""
