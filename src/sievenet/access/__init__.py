"""Who may do what: roles, identities, and the gate that every connection passes.

`identity` holds the values that the rest speaks of: `Role`, `Credentials` (what the other side shows), `Identity` (who
it is found to be) and `Gate` (who decides). The conversation (`sievenet.session`) asks the gate once for each
connection and checks the role of each message; nothing here touches a socket.

Imports only `append`, `content` and `errors`.
"""
