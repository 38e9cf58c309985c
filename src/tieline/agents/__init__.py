"""How a message reaches an agent, and how an agent that speaks no protocol is heard.

Above: the command line. Below: the SDK and the protocols. Each module is one way to reach one kind of program; which
way is best for whom is for a person to choose, so none of them is turned on by itself.
"""
