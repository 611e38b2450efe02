"""Programs that tests start: in forks of a server, in terminals, from the pages of the documents."""
